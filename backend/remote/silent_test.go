package remote

import (
	"io"
	"log"
)

// silent is the log of a server whose clients break connections.
func silent() *log.Logger { return log.New(io.Discard, "", 0) }
