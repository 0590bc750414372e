"""Who answers: the block list, quick and saved answers, an answer being written for somebody else, the engine."""
