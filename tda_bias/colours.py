"""Okabe and Ito's colours, told apart by colour-blind readers and in grey."""

BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
GREY, LIGHT_GREY = "#666666", "#999999"
