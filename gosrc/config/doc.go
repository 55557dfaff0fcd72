// Package config turns the settings and server facts that the C shim hands
// over as one JSON object into a typed Config.
//
// The server owns the settings: ranges, units and defaults live in
// extension/guc.c, and a bad value never gets here. What this package still
// refuses is an object that two libraries of different releases could
// disagree about: a missing setting, a word of the wrong kind, a number out of
// any sense. The error names the setting, because the one who reads it in the
// server log changes settings, not JSON.
//
// It is the only package that knows viper, and it uses an instance for each
// call: a reload parses the whole object again and the old Config stays valid
// for whoever still holds it.
package config
