"""Pictures of every page, from a server of its own with a seeded database: `make screenshots`.

A page that is to have a picture gets a line in `pages.py`.
"""
