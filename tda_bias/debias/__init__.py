"""Training only chosen heads until a model's preference no longer depends on the target, tested."""
