"""The artefacts that the offline phase hands to the online one: data and their own reading and writing."""
