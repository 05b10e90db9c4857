"""Placement of neurons and layers on the GPU and in RAM: cost model, memory plan and solver.

Paper: PowerInfer, section 6.
"""
