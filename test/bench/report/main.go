// Command report makes something to read of the figures that the cases of make
// bench leave behind, lines of "case,round,variant,metric,value": a list of medians, or
// with -page the page that a template describes.
//
//	report -figures build/bench                                    everything, a line each
//	report -figures build/bench/tick.csv                           of one case
//	report -figures build/bench -page test/bench/benchmarks.md.tmpl
//
// A template has these functions; round for round is what they compare, so that
// the machine's changes of speed do not come in:
//
//	fact CASE NAME                         text
//	med CASE VARIANT METRIC                median (least to most) over the rounds
//	ratio CASE VARIANT METRIC BASE...      the same of the ratios to the mean of the bases in the same round
//	mean CASE VARIANT METRIC BASE...       mean of these ratios ± its 95 % interval
//	worst METRIC CASE PREFIX               the largest median of all variants that begin so, with the variant
//	split WORDS, join PART...              lists, and names put together
//	cut SHAPE                              the numbers in the name of a variant
//
// What there is no figure for becomes "not measured", and is told on standard error.
package main

import (
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

const notMeasured = "not measured"

func main() {
	figures := flag.String("figures", "build/bench", "a file of figures, or a directory of them")
	page := flag.String("page", "", "template of a page")
	flag.Parse()
	if err := run(*figures, *page, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(figures, page string, out, complaints io.Writer) error {
	r := newResults()
	if err := r.readAll(figures); err != nil {
		return err
	}
	if page == "" {
		return r.list(out)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	if err := r.page(string(text), out); err != nil {
		return err
	}
	for _, what := range r.missing {
		fmt.Fprintln(complaints, "report: not measured:", what)
	}
	return nil
}

// key names what was measured in each round.
type key struct{ test, variant, metric string }

func (k key) String() string { return k.test + " " + k.variant + " " + k.metric }

type results struct {
	order   []key
	values  map[key]map[int]float64 // by round
	facts   map[[2]string]string    // by case and name
	missing []string
}

func newResults() *results {
	return &results{values: make(map[key]map[int]float64), facts: make(map[[2]string]string)}
}

func (r *results) readAll(path string) error {
	files := []string{path}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.csv")); err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("no figures in %s: %w", path, fs.ErrNotExist)
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := r.read(string(text)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func (r *results) read(text string) error {
	for n, line := range strings.Split(text, "\n") {
		if line == "" {
			continue
		}
		f := strings.SplitN(line, ",", 5) // a fact may have commas
		if len(f) != 5 {
			return fmt.Errorf("line %d is no figure: %q", n+1, line)
		}
		if f[2] == "fact" {
			r.facts[[2]string{f[0], f[3]}] = f[4]
			continue
		}
		round, err := strconv.Atoi(f[1])
		if err != nil {
			return fmt.Errorf("line %d: round: %w", n+1, err)
		}
		value, err := strconv.ParseFloat(f[4], 64)
		if err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
		k := key{f[0], f[2], f[3]}
		if r.values[k] == nil {
			r.values[k] = make(map[int]float64)
			r.order = append(r.order, k)
		}
		r.values[k][round] = value
	}
	return nil
}

func (r *results) list(out io.Writer) error {
	for _, k := range r.order {
		if _, err := fmt.Fprintf(out, "%-10s %-32s %-28s %s\n", k.test, k.variant, k.metric, spread(r.of(k))); err != nil {
			return err
		}
	}
	return nil
}

func (r *results) page(text string, out io.Writer) error {
	t, err := template.New("page").Option("missingkey=error").Funcs(template.FuncMap{
		"fact": r.fact, "med": r.med, "ratio": r.ratio, "mean": r.mean, "worst": r.worst,
		"split": strings.Fields, "join": func(parts ...string) string { return strings.Join(parts, "") },
		"cut": func(shape string) []string {
			return strings.FieldsFunc(shape, func(c rune) bool { return c < '0' || c > '9' })
		},
	}).Parse(text)
	if err != nil {
		return err
	}
	return t.Execute(out, nil)
}

// of returns the values of all rounds, ascending.
func (r *results) of(k key) []float64 {
	var v []float64
	for _, value := range r.values[k] {
		v = append(v, value)
	}
	slices.Sort(v)
	return v
}

func (r *results) lacks(what string) string {
	if !slices.Contains(r.missing, what) {
		r.missing = append(r.missing, what)
	}
	return notMeasured
}

func (r *results) fact(test, name string) string {
	if text, ok := r.facts[[2]string{test, name}]; ok {
		return text
	}
	return r.lacks(test + " fact " + name)
}

func (r *results) med(test, variant, metric string) string {
	k := key{test, variant, metric}
	if v := r.of(k); len(v) > 0 {
		return spread(v)
	}
	return r.lacks(k.String())
}

// ratios compares within each round that has both.
func (r *results) ratios(test, variant, metric string, bases []string) []float64 {
	var v []float64
	for round, value := range r.values[key{test, variant, metric}] {
		var sum float64
		n := 0
		for _, base := range bases {
			if b, ok := r.values[key{test, base, metric}][round]; ok {
				sum += b
				n++
			}
		}
		if n > 0 && sum != 0 {
			v = append(v, value/(sum/float64(n)))
		}
	}
	slices.Sort(v)
	return v
}

func (r *results) ratio(test, variant, metric string, bases ...string) string {
	v := r.ratios(test, variant, metric, bases)
	if len(v) == 0 {
		return r.lacks(key{test, variant, metric}.String() + " by " + strings.Join(bases, ", "))
	}
	if len(v) == 1 {
		return fmt.Sprintf("%.3f", v[0])
	}
	return fmt.Sprintf("%.3f (%.3f to %.3f)", median(v), v[0], v[len(v)-1])
}

func (r *results) mean(test, variant, metric string, bases ...string) string {
	v := r.ratios(test, variant, metric, bases)
	if len(v) == 0 {
		return r.lacks(key{test, variant, metric}.String() + " by " + strings.Join(bases, ", "))
	}
	var sum, squares float64
	for _, x := range v {
		sum += x
	}
	mean := sum / float64(len(v))
	if len(v) == 1 {
		return fmt.Sprintf("%.3f", mean)
	}
	for _, x := range v {
		squares += (x - mean) * (x - mean)
	}
	n := float64(len(v))
	return fmt.Sprintf("%.3f ± %.3f", mean, quantile(len(v)-1)*math.Sqrt(squares/(n-1)/n))
}

// quantile is that of Student's distribution for an interval of 95 %.
func quantile(freedom int) float64 {
	few := []float64{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26}
	if freedom <= len(few) {
		return few[freedom-1]
	}
	return 1.96 + 2.6/float64(freedom) // 0.01 off at most
}

func (r *results) worst(metric, test, prefix string) string {
	var most float64
	var of string
	for _, k := range r.order {
		if k.test != test || k.metric != metric || !strings.HasPrefix(k.variant, prefix) {
			continue
		}
		if m := median(r.of(k)); of == "" || m > most {
			most, of = m, strings.TrimPrefix(k.variant, prefix)
		}
	}
	if of == "" {
		return r.lacks(test + " " + prefix + "* " + metric)
	}
	return number(most) + " (`" + of + "`)"
}

func median(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

func spread(sorted []float64) string {
	if len(sorted) == 1 {
		return number(sorted[0])
	}
	return fmt.Sprintf("%s (%s to %s)", number(median(sorted)), number(sorted[0]), number(sorted[len(sorted)-1]))
}

// number writes three digits that mean something, and thousands apart.
func number(x float64) string {
	switch a := math.Abs(x); {
	case a >= 1000:
		digits := strconv.FormatFloat(math.Round(a), 'f', 0, 64)
		for i := len(digits) - 3; i > 0; i -= 3 {
			digits = digits[:i] + " " + digits[i:]
		}
		if x < 0 {
			digits = "-" + digits
		}
		return digits
	case a >= 100 || x == math.Trunc(x):
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	default:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
}
