"""Profiles a model's activations and trains the predictors of which neurons a token needs.

Paper: PowerInfer, section 5.1.
"""
