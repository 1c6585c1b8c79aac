package main

// The technologies this binary can talk to: one line each.
import (
	_ "github.com/croft-dev/croft/backend/dir"
	_ "github.com/croft-dev/croft/backend/postgres"
	_ "github.com/croft-dev/croft/backend/redis"
)
