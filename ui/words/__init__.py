"""What the pages say, in Chinese and English."""
