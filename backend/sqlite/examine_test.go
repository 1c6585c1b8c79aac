package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/store"
)

// TestTheDoctorNamesWhatItLooksAt checks that a good file passes every check,
// and that each finding which is not OK comes with advice.
func TestTheDoctorNamesWhatItLooksAt(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, nil)
	defer st.Close()
	findings, err := st.Examine(t.Context())
	must(t, err)
	for _, check := range []string{"version", "tier", "file system", "free space", "journal_mode", "synchronous", "write lock", "permissions", "sync folder", "size", "schema", "keys", "integrity"} {
		if got := level(findings, check); got != store.OK {
			t.Errorf("%s is %q", check, got)
		}
	}
	for _, f := range findings {
		if f.Seen == "" || (f.Level != store.OK) != (f.Advice != "") {
			t.Errorf("%+v", f)
		}
	}
	execute(t, file, "INSERT INTO croft_migration (version, name) VALUES (99, 'of the future')")
	if found := st.examineTables(t.Context(), st.base)[0]; found.Level != store.Warn || !strings.Contains(found.Seen, "99") {
		t.Errorf("tables of a newer Croft: %+v", found)
	}
}

// TestTheSchemaIsWhatTheStoreUses makes the tables by hand, beside others. The
// store finds them and leaves them as they are.
func TestTheSchemaIsWhatTheStoreUses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "app.db")
	execute(t, file, "CREATE TABLE mine (id INTEGER)")
	execute(t, file, Schema())
	var before, after string
	const tables = "SELECT group_concat(name) FROM sqlite_schema"
	query(t, file, tables, &before)
	st := open(t, file, nil)
	defer st.Close()
	term(t, st, "k")
	if query(t, file, tables, &after); before != after {
		t.Errorf("it has become %s from %s", after, before)
	}
	var application int
	if query(t, file, "PRAGMA application_id", &application); application != 0 {
		t.Errorf("the file of another application was marked as Croft's own: %#x", application)
	}
	db, err := connections(file, 0)
	must(t, err)
	defer db.Close()
	if _, err := db.Exec(Schema()); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("made a second time: %v", err)
	}
}
