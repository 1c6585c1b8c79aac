package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// serveFiles is an MCP server with three tools: write_file, read_file, and
// hang, which starts a process and does not answer.
func serveFiles(folder string) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct{ Path, Text string }
			}
		}
		if err := json.Unmarshal(in.Bytes(), &m); err != nil || m.ID == nil {
			continue
		}
		path, result := filepath.Join(folder, filepath.Base(m.Params.Arguments.Path)), ""
		switch m.Params.Name {
		case "write_file":
			result = "written"
			if err := os.WriteFile(path, []byte(m.Params.Arguments.Text), 0o600); err != nil {
				result = err.Error()
			}
		case "read_file":
			text, err := os.ReadFile(path)
			if result = string(text); err != nil {
				result = err.Error()
			}
		case "lease":
			result = os.Getenv("CROFT_LEASE")
		case "key":
			result = os.Getenv("API_KEY")
		case "hang":
			c := exec.Command("sleep", "1000")
			if err := c.Start(); err == nil {
				_ = os.WriteFile(path, []byte(fmt.Sprint(c.Process.Pid)), 0o600)
			}
			continue
		}
		text, _ := json.Marshal(result)
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`+"\n", m.ID, text)
	}
}
