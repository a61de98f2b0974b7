"""Early replies: which proxies bring them to the client, with which application servers."""
