"""Every sentence a person can see, in Chinese and English."""
