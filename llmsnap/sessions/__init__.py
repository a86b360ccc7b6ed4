"""Conversations that outlive a llama-server's process: its slots, saved, restored and proved.

`keeper` is what the others are for: it says what is saved when, and what comes back for a request.
"""
