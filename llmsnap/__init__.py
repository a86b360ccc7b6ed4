"""llmsnap keeps many local LLM servers at hand on one machine that holds one or two of them.

The map, from the top down; a module imports its own line or a lower one, never a higher one:

    cli      commands: serve, check, ps, load, unload, logs, demo
    app      the only place that builds objects and orders start and stop
    web      HTTP: which model a request names, the hot path, the administrators' endpoints
    runtime  the asyncio shell: processes, their logs and health, the supervisor
    core     decisions: states, queue, memory books, victims; no I/O and no clock of its own
    config   what the file may say
    errors   one tree of errors with HTTP status and code
"""

__version__ = "0.1.0"
