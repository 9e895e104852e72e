"""Every figure and table of the papers, and those they lack, drawn from saved runs."""
