"""The quota router: who may call which model now, and how long the others wait."""
