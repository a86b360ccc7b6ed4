"""Ollama's API, over the same models: requests become OpenAI's, and answers Ollama's.

`requests` and `answers` translate plain values, `events` a stream as it comes, `outlet` puts that
between the hot path and the client. `routes` has the paths, `listing` what is said of models.
"""
