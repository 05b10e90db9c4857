"""Profile a model's activity and train the predictors of which neurons a token needs.

Paper: PowerInfer, section 5.1.
"""
