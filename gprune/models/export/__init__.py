"""Answers: how does a pruned model leave the app, so that others can load it?"""
