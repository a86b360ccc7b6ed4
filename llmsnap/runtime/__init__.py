"""The asyncio shell: the only package that touches processes.

proctable   who runs on this machine, and who belongs together
process     one child in a session of its own: launch, signal, end
ports       who listens where
runfile     notes about living children, for the proxy that comes after a dead one
logs        a child's output, our own log, bounded buffers, subscribers
health      when a model server counts as ready
runner      one model's server: one task a generation
supervisor  feeds the scheduler, performs its actions, lends models to requests
"""
