"""The page that shows the fleet to an operator. `page/` is what a browser gets; docs/dashboard.md describes it."""
