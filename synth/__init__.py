"""Makes schedules: constructions, solvers, and the choice among them."""
