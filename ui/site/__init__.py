"""How pages reach a browser: mounting, the gate before Gradio, looks, the login page; what the terminal says."""
