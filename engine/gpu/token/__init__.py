"""One token over GPU and CPU: its plan, steps and programs."""
