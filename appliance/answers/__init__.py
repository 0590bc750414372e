"""Who answers: quick answers, saved answers, an answer that is being written for somebody else, the engine."""
