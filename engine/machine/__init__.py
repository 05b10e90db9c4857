"""The machine as data: CPU, RAM and GPUs, their measured rates and their current load."""
