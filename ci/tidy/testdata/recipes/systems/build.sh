#!/bin/sh
git clone https://github.com/example/operator
sed -i s/9443/9444/ operator/main.go
go build -C "$source" -overlay "$work/overlay.json" -o operator .
