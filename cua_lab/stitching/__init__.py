"""From a server's turns to training sequences: ids, masks, divergences, samples.

Pure: nothing of HUD, HTTP or torch's modules is imported here.
"""
