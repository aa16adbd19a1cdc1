"""Encoded tensors in other frameworks: one module for each, which only users of that framework import."""
