"""What every CPU kernel runs on: compilation, vectors, the thread pool, calls and the state of a token."""
