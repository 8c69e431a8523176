"""Desktops: a screen, a keyboard and a pointer behind one RFB port.

`app.App` is what draws and listens, `rfb.RFBServer` is how anybody reaches it; `apps` holds the
three apps of the lab.
"""
