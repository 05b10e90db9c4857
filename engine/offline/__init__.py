"""The offline phase: neurons counted, predictors trained, placements solved. It answers nobody.

Paper: PowerInfer, sections 5.1 and 6.
"""
