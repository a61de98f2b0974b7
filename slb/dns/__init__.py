"""A DNS responder whose answers are the instances that live and are ready."""
