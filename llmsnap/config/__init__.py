"""What the configuration file may say, and how it is read.

A text passes through `environment` (`${env.X}`), `yamlnodes` (values typed as in Go, with their
lines), `models` and `macros` (`${x}`, `${PORT}`), `decode` (nodes to the structs of `schema`), then
`settings`, `finish`, `naming`, `groups` and `memory` (defaults and checks). `loader` calls them in
that order, and makes errors and warnings of what they say.
"""
