module github.com/croft-dev/croft/tools/lint

go 1.26.0

tool mvdan.cc/gofumpt

require (
	codeberg.org/polyfloyd/go-errorlint v1.9.0
	github.com/ashanbrown/makezero/v2 v2.2.1
	github.com/charithe/durationcheck v0.0.11
	github.com/go-critic/go-critic v0.15.0
	github.com/golangci/unconvert v0.0.0-20250410112200-a129a6e6413e
	github.com/gordonklaus/ineffassign v0.2.0
	github.com/karamaru-alpha/copyloopvar v1.2.2
	github.com/kisielk/errcheck v1.20.0
	github.com/ldez/usetesting v0.5.0
	github.com/sanposhiho/wastedassign/v2 v2.1.0
	github.com/timakin/bodyclose v0.0.0-20260723120731-857993a2939c
	go.augendre.info/fatcontext v0.10.1
	golang.org/x/tools v0.50.0
	honnef.co/go/tools v0.8.1
	mvdan.cc/gofumpt v0.12.0
	mvdan.cc/unparam v0.0.0-20260823230713-2fa3d841b0c8
)

require (
	github.com/BurntSushi/toml v1.6.0 // indirect
	github.com/go-toolsmith/astcast v1.1.0 // indirect
	github.com/go-toolsmith/astcopy v1.1.0 // indirect
	github.com/go-toolsmith/astequal v1.2.0 // indirect
	github.com/go-toolsmith/astfmt v1.1.0 // indirect
	github.com/go-toolsmith/astp v1.1.0 // indirect
	github.com/go-toolsmith/strparse v1.1.0 // indirect
	github.com/go-toolsmith/typep v1.1.0 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/gostaticanalysis/analysisutil v0.7.1 // indirect
	github.com/gostaticanalysis/comment v1.5.0 // indirect
	github.com/gostaticanalysis/testutil v0.5.0 // indirect
	github.com/hashicorp/go-version v1.9.0 // indirect
	github.com/quasilyte/go-ruleguard v0.4.5 // indirect
	github.com/quasilyte/gogrep v0.5.0 // indirect
	github.com/quasilyte/regex/syntax v0.0.0-20210819130434-b3f0c404a727 // indirect
	github.com/quasilyte/stdinfo v0.0.0-20220114132959-f7386bf02567 // indirect
	golang.org/x/exp/typeparams v0.0.0-20260811152304-ee035b5b010f // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	golang.org/x/tools/go/packages/packagestest v0.1.1-deprecated // indirect
)
