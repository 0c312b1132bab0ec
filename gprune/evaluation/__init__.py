"""Answers: what is a model worth on a text?"""
