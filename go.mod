module github.com/croft-dev/croft

go 1.26.0

require (
	golang.org/x/sys v0.49.0
	pgregory.net/rapid v1.3.0
)
