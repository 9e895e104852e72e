"""Bias in underspecified questions: whom does a model pick where the text does not say?"""
