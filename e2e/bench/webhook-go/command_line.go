package main

import (
	"encoding/json"
	"slices"
	"strings"
)

// edit is one entry of the undo annotation, field by field as Outrigger writes it.
type edit struct {
	Container string   `json:"container"`
	List      string   `json:"list"`
	Index     int      `json:"index"`
	Flag      string   `json:"flag"`
	Was       []string `json:"was,omitempty"`
	Now       []string `json:"now,omitempty"`
}

// commandLine is a list of --flag=value tokens and what was done to it.
type commandLine struct {
	list   string
	tokens []string
	edits  []edit
}

// makeExternal gives a kube-controller-manager 1.26 the flags of the phase Migrate.
func (c *commandLine) makeExternal() {
	c.set("cloud-provider", inTreeProvider, externalProvider)
	for _, flag := range []string{"enable-leader-migration", "leader-migration-config", "external-cloud-volume-plugin", "cloud-config"} {
		c.remove(flag)
	}
}

func (c *commandLine) set(flag, from, to string) {
	index := slices.Index(c.tokens, "--"+flag+"="+from)
	if index < 0 {
		return
	}
	now := "--" + flag + "=" + to
	c.edits = append(c.edits, edit{List: c.list, Index: index, Flag: flag, Was: []string{c.tokens[index]}, Now: []string{now}})
	c.tokens[index] = now
}

func (c *commandLine) remove(flag string) {
	name := "--" + flag
	index := slices.IndexFunc(c.tokens, func(token string) bool {
		return token == name || strings.HasPrefix(token, name+"=")
	})
	if index < 0 {
		return
	}
	c.edits = append(c.edits, edit{List: c.list, Index: index, Flag: flag, Was: []string{c.tokens[index]}})
	c.tokens = slices.Delete(c.tokens, index, index+1)
}

// undo is the annotation's text.
func (c *commandLine) undo(container string) (string, error) {
	for index := range c.edits {
		c.edits[index].Container = container
	}
	text, err := json.Marshal(c.edits)
	return string(text), err
}
