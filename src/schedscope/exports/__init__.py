"""A trace in other tools' formats; a submodule named like `schedscope.export` would shadow it."""
