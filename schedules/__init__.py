"""The nouns (topology, arrivals, schedule, program) and what can be asked of them."""
