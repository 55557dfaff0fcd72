package gosrc

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "pg_lock_history/gosrc/"

// allowed is the table of doc/design.md: which packages of ours, and which of
// others, each package may import. Run with -count=1: the test cache does not
// notice new imports elsewhere.
var allowed = map[string][]string{
	"lockmgr":             {},
	"lockmgr/lockmgrtest": {"lockmgr"},
	"snapshot":            {},
	"history":             {"lockmgr", "snapshot"},
	"waitgraph":           {"lockmgr", "snapshot", "history"},
	"deadlock":            {"lockmgr"},
	"anomaly":             {"history", "snapshot"},
	"episode":             {"lockmgr", "snapshot", "history", "waitgraph", "querytext", "deadlock"},
	"querytext":           {},
	"object":              {"history", "lockmgr", "snapshot"},
	"ring":                {"snapshot"},
	"report":              {},
	"queue":               {"history", "snapshot"},
	"config":              {"querytext", "snapshot", "github.com/spf13/viper", "github.com/go-viper/mapstructure/v2"},
	"load":                {"history", "snapshot"},
	"fastpath":            {"history", "snapshot"},
	"live":                {"history", "lockmgr", "object", "querytext", "snapshot", "waitgraph"},
	"sampler":             {"anomaly", "config", "episode", "fastpath", "history", "live", "load", "lockmgr", "querytext", "report", "snapshot", "waitgraph"},
	"store": {"config", "history", "lockmgr", "object", "querytext", "queue", "report", "ring", "snapshot",
		"github.com/jackc/pgservicefile", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn", "github.com/jackc/pgx/v5/pgtype"},
	"probe":         {"C", "history", "live", "lockmgr", "sampler", "snapshot"},
	"historytest":   {"history", "lockmgr", "snapshot"},
	"livetest":      {},
	"statementtest": {"C"},
	"spill":         {"history", "lockmgr", "snapshot"},
	"worker":        {"C", "config", "history", "lockmgr", "probe", "querytext", "queue", "report", "sampler", "snapshot", "spill", "store"},
}

func TestImportsPointOneWay(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(path))
		if pkg == "." {
			return nil // doc.go
		}
		seen[pkg] = true
		may, known := allowed[pkg]
		if !known {
			t.Errorf("package %s is not in the table of allowed imports", pkg)
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			ours := strings.HasPrefix(name, module)
			if !ours && !strings.Contains(name, ".") && name != "C" {
				continue // the standard library
			}
			if !slices.Contains(may, strings.TrimPrefix(name, module)) {
				t.Errorf("%s imports %s, which package %s may not", path, name, pkg)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range allowed {
		if !seen[pkg] {
			t.Errorf("package %s is in the table but not in the tree", pkg)
		}
	}
}
