package scenarios

func broken() { missing() }

func loop() { go broken() }
