"""Everything in a browser. The only package that imports gradio; talks to appliance/, never to the engine itself."""
