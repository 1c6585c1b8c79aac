module github.com/croft-dev/croft/bench

go 1.26.0

require github.com/croft-dev/croft v0.0.0

require golang.org/x/sys v0.49.0 // indirect

replace github.com/croft-dev/croft => ../
