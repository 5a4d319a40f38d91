"""The two engines behind `latecomer.schedules.simulate`."""
