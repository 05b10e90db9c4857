"""Which neurons and layers are kept on the GPU and which in RAM: the cost model, the memory plan and the solver.

Paper: PowerInfer, section 6.
"""
