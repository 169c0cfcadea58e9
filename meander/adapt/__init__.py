"""The right mechanism for the demands: monitors, fitness, selection, and the loop that decides on transitions."""
